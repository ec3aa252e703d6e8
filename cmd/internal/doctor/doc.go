// Package doctor checks whether Millrace can run in a place, and says what to do where it
// cannot. `millrace doctor` prints what it finds, and the services check the same at their
// start and log it.
//
// Each check is a pure function from what was seen to a [Finding]. What is seen comes from
// thin readers: [API] asks the API server, [stream.Bus.Inspect] the bus, and package command
// reads files and flags, since it knows them. No check changes anything: the API server is
// asked with reads, and with reviews of its own rights that it does not store.
//
// A check that fails is one with which Millrace does not start, does not do its work, or does
// it twice. A warning is what an operator should know. What cannot be seen from here, for a
// lack of rights or because something before it failed, is not checked, and never failed.
package doctor
