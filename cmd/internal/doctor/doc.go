// Package doctor checks whether Millrace can run in an environment, and says what to do if it
// cannot. `millrace doctor` prints the findings, and the services run the same checks at their
// start and log them.
//
// Each check is a pure function from observations to a [Finding]. Thin readers make the
// observations: [API] asks the API server, [stream.Bus.Inspect] the bus, and package command
// reads files and flags, because it knows them. No check changes anything: the requests to the
// API server are reads, and reviews of the client's own rights, which it does not store.
//
// A check fails if Millrace would not start, would not do its work, or would do it twice. A
// warning is something that an operator should know. If a check cannot observe something, for
// lack of rights or because an earlier check failed, its state is not checked, and never failed.
package doctor
