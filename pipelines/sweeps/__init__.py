"""Many experiments that differ in some settings, as trials of Ray Tune that share one store."""
