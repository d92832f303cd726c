"""Questions in one line of text, answered online: ``P(power > 5 within 1h)``, ``power at +6h``, ``time until …``."""
