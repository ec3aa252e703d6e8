// Package trace makes the spans of Millrace's distributed traces (OpenTelemetry, W3C trace
// context): one trace for each change by an outside client, through deltas, turns and requests
// to everything that they lead to.
//
//	watcher      send EV_<kind>            a change; the root where no writer of ours made it
//	reconcilers  process EV_<kind>         a turn, and what asked for it
//	               reconcile <controller>  the decision, where it is one
//	                 send TURN_<controller>
//	writer       process TURN_<controller>
//	               PATCH /apis/...         one for each request of the API server
//	watcher      send EV_<kind>            the change that the request made
//
// A trace is carried in the headers of messages and of requests to the API server, and is never
// written on an object. The context of a message is that of its send span. A message without one
// is not traced, which costs nothing: the sampler decides once, where a trace begins.
//
// A trace begins with a change that none of our writers made, or with a turn without a known
// cause: a first look, or a wake that was scheduled without a trace. Its ids derive from the
// object's uid and version, so that every watcher derives the same ones, and a reader that knows
// the version can find the trace. A change by a writer of ours continues the trace of the
// request that made it: writers announce their writes ([Write]) as soon as they get the answer.
//
// Traces have limits ([Limits]). After a cut a new trace begins, whose first span has a link to
// the last one of the old trace; it is sampled if the old one was.
//
// Spans contain names and versions of objects, never their content, and for Secrets not even the
// name.
//
// The package uses only OpenTelemetry's interfaces. A nil [Tracer] makes no spans, and a nil
// [Span] stands for none: all their methods may be called.
package trace
