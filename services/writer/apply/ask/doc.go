// Package ask answers the command ask: it reads what a controller needs to know and no watcher
// records, and changes nothing.
//
// An [Answerer] makes the reads as the controller that asks. Which read answers a question is said
// by its subresource: what a namespace holds (contents.go), what may use an object (users.go), which
// objects of a resource are stored (objects.go), how busy pods are (readings.go, metered.go), whether
// a user may do something (review.go), whether the expressions of a policy fit (types.go), and which
// address ranges are taken (ranges.go). Without one of these it is the object itself that is read,
// as an owner reference names it (reference.go).
//
// Most answers are about an object that existed while they were found out: it is read last, so that
// no answer is about a later object of its name. When a bootstrap token expires is answered by
// package credentials, which alone decodes Secrets.
package ask
