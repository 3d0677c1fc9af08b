"""One module per in-tree plugin, named as in kube-scheduler, and the registry that knows them."""
