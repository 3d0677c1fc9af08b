"""CEL, the Common Expression Language, as Kubernetes v1.36 has it.

Rules of CustomResourceDefinitions are written in it, and selectors of devices. In order of reading:

`environment`  what the rest of the project uses: variables, functions, compiled programs, a cache
`parser`       text to `tree`, by CEL's grammar; `tokens` are the words that it reads
`checker`      the types of a tree before it runs, and what is wrong with them (`types`)
`compiler`     a tree to Python closures; `macros` are the forms that bind variables
`cost`         what an evaluation may use up
`library`      the functions: CEL's own, cel-go's extensions, Kubernetes'; begin with `signatures`
`values`       what expressions compute with; `comparison`, `arithmetic` and `lookup` are on them

Invariant: evaluation reads its variables and returns a value or raises `EvaluationError`; no other
exception leaves it, and the cost limit ends it.
"""
