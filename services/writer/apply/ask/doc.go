// Package ask answers the command ask: it reads what a controller needs to know and no watcher
// records, and changes nothing.
//
// An [Answerer] makes the reads as the controller that asks. The subresource of a question says what
// is asked: what a namespace holds (contents.go), what may use an object (users.go), which objects of
// a resource are stored (objects.go), how busy pods are (readings.go, metered.go), whether a user may
// do something (review.go), whether the expressions of a policy fit (types.go), and which address
// ranges are taken (ranges.go). Every other question is for an object as an owner reference names it
// (reference.go). Package credentials answers when a bootstrap token expires: it alone decodes
// Secrets.
//
// A question is about an object. Most answers read that object last: it existed while the answer was
// found out, so that no answer is about a later object of its name.
package ask
