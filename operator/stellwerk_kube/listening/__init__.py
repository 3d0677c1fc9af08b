"""The limits of every port: what peers may send, how long they may take, how many there may be.

The operator's port (`stellwerk.serving`), the page and the embedded API listen through LimitedSite;
docs/security.md has the limits and the tests that hold them. In order of reading:

`limits`      the numbers, whose defaults are those of the operator's port
`port_use`    what a port's peers hold now: connections, requests, bytes; who has to give way
`accepted`    one connection, as it is counted there
`descriptors` how many the process has free
`framing`     where a request ends, and whether its head and body are within the limits
`connection`  aiohttp's protocol of one connection, behind the framing and deadlines
`tls`         TLS of one connection, with one buffer for all
`site`        the accept loop: takes connections, and begins their handshakes
`middleware`  what handlers see of it: the gate, requests of a user, JSON within the limits

Invariant: what a connection costs is bounded before aiohttp parses anything; what keeps to the
limits reaches aiohttp as it was sent.
"""
