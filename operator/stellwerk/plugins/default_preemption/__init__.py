"""DefaultPreemption: the plugin, and the dry run that finds victims on many nodes at once."""
