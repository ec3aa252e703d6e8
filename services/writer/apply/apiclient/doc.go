// Package apiclient makes single requests to the API server: a [Client] those of one controller,
// with its identity, and [Discovery] the writer's own.
//
// Each request is made once: the client library does not repeat it. A request about an object
// continues the trace of its turn, is counted, and goes to a path of which every part is one
// segment. An answer is a [plan.Response]. Its words are left out where they may repeat what must
// not be recorded.
//
// The package knows neither turns nor commands: which requests a command needs, how often they are
// repeated and how many are in flight is for the packages above it.
package apiclient
