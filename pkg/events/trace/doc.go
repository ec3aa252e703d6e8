// Package trace gives everything that Millrace does its place in a distributed
// trace (OpenTelemetry, W3C trace context): one trace for each change that
// a client outside made, through deltas, turns and requests to whatever they led
// to.
//
//	watcher      send EV_<kind>            a change; the root where no writer of ours made it
//	reconcilers  process STATE_<kind>      a turn, and what asked for it
//	               reconcile <controller>  the decision, where it is one
//	                 send TURN_<controller>
//	writer       process TURN_<controller>
//	               PATCH /apis/...         one for each request of the API server
//	watcher      send EV_<kind>            the change that the request made
//
// A trace travels in the headers of messages and in requests of the API server,
// and is never written on an object. The context of a message is that of its send
// span; a message without one is not traced, which costs nothing: the decision is
// made once, by the sampler, where a trace begins.
//
// A trace begins with a change that none of our writers made, or with a turn that comes
// of nothing that is known: a first look, or a wake that was set in no trace. Its ids derive from
// the object's uid and version, so that every watcher gives the same ones, and
// a reader that knows the version can tell the trace. A change that a writer of ours
// made goes on in the trace of the request that made it: writers tell of their
// writes ([Write]) the moment that they are answered.
//
// Traces have limits ([Limits]). Behind a cut a new trace begins, whose first span
// has a link to the last one of the old trace; it is sampled if that one was.
//
// Spans tell names and versions of objects, never their content, and of Secrets
// not even the name.
//
// The package knows OpenTelemetry's interfaces and no implementation. A nil
// [Tracer] makes no spans, and a nil [Span] is none: all their methods may be
// called.
package trace
