"""A name for the learners of each rule: ``TrueOnlineETD(n, …)`` is ``Learner("true_online_etd", n, …)``."""

from __future__ import annotations

from functools import partial

from emphatic.learner import Learner

__all__ = [
    "ABTD",
    "ETD",
    "GQ",
    "GTD",
    "GTD2",
    "HTD",
    "TD",
    "TDRC",
    "ETDBeta",
    "ProximalGTD2",
    "TreeBackup",
    "TrueOnlineETD",
    "TrueOnlineETDBeta",
    "TrueOnlineGTD",
    "TrueOnlineTD",
    "VTrace",
]

TD = partial(Learner, "td")
TrueOnlineTD = partial(Learner, "true_online_td")
ETD = partial(Learner, "etd")
ETDBeta = partial(Learner, "etd_beta")
TrueOnlineETD = partial(Learner, "true_online_etd")
TrueOnlineETDBeta = partial(Learner, "true_online_etd_beta")
GTD = partial(Learner, "gtd")
GTD2 = partial(Learner, "gtd2")
TrueOnlineGTD = partial(Learner, "true_online_gtd")
HTD = partial(Learner, "htd")
ProximalGTD2 = partial(Learner, "proximal_gtd2")
TDRC = partial(Learner, "tdrc")
GQ = partial(Learner, "gq")
TreeBackup = partial(Learner, "tree_backup")
VTrace = partial(Learner, "vtrace")
ABTD = partial(Learner, "abtd")
