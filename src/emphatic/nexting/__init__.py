"""The main job: a table of readings in; predictions, scores, a report and a model out; the same live on a pipe."""
