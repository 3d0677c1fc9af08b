"""The types of the API as tables: one text file for each group, and what reads them.

A type is a block, a field a line of it:

    DeploymentSpec | Which pods are kept, and how they are replaced.
      replicas int #1 pointer default=1 minimum=0 | How many pods are wanted.

A line has the name of the field, its type (`[T]` a list, `{T}` a map), words, and after a bar what
`kubectl explain` says. The words:

`#2`, `#2.2`    the number in protobuf; with the path to it where JSON writes a struct inline
`go=`           the type in the API server's program, where it does not follow; mismatches quote it
`present`       in every object of the API: filled with the type's zero when missing
`always`        an optional struct that is nevertheless always written
`nullable`      written as null when missing
`pointer`       a zero value is kept; otherwise it counts as absent
`merge`, `merge=key`, `retain`   how a strategic merge patch merges a list; $retainKeys is honoured
`map=key,key`, `set`   how an applied list merges; all other lists are taken whole
`atomic`        a map is owned as a whole; on the line of a type, all its values are
`granular`      this value of an atomic type is not
`default=`      the value of a field that is left out, also as the key of a list's items
`required`, `minimum=`, `maximum=`, `maxItems=`, `format=`, `enum=A,B`, `unionMember`, `immutable`
                what is refused, as Kubernetes' declarative validation names it; `format=` takes its
                names, such as k8s-short-name
`unique=key`    the field by which the items of a list must differ
`gate=GATE`, `forbidden=GATE`   a field that is dropped, or refused, while the gate is off
`check=f`, `check=f:word`   a function of `validation`, which is given the value, its field, the
                object around it and the word
`as=Name`       the field's name in the server's internal type; a star marks a pointer there, `as=-`
                a field that messages do not print

On the line of a type, `internal` says that messages print its values as the internal type, in the
order of the lines (`internal=inline`: under the JSON names, and only what is set), `like=Other`
that fields without a text have that of the other type. A field behind a tilde is printed only. What
stands under `*` describes fields of any type that nothing nearer describes. The numbers and the Go
types are written by `python -m tests.support.schema_tables KUBECTL`. The order of the lines is the
order of the refusals.

A kind is a block that begins with `kind` and says where it is served. What differs from a
namespaced kind with every verb, no subresources and the field selectors of all objects stands in
words with the names of the fields of `kinds.ResourceKind`; what a write of it goes through, behind
`rules`, in words with the names of the fields of `strategy.KindStrategy`, and functions by their
names inside `stellwerk_cluster`; a default without a dot is a function of `defaults` here, which
commands call for manifests as well. `stored=v1` makes a view of the same kind in that version,
whose words and rules it shares. The words of the fields come before these functions; `change`
names one for changes alone, and `declared` stands where no other rule does. A `column` of `kubectl
get` is one of the shared ones or described: see `apiserver.tables`.

Read by the embedded cluster, and by commands that check the fields of manifests. Invariant: every
type and field stands in exactly one file.
"""
