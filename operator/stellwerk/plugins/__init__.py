"""One module per in-tree plugin, named as in kube-scheduler; rooms hold what serves several.

`registry` knows every plugin by name, `assembly` makes a profile's plugins and their framework.
"""
