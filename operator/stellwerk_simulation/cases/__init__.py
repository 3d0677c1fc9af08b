"""Cases: a small cluster and a pod as JSON, decided offline; what `stellwerk decide` is made of."""
