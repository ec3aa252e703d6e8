// Package query has what a turn may ask of the writer and no request to the API server answers: the
// objects of a namespace, the users of a volume claim, the metrics of an autoscaler, whether a user
// may do something. Each question is a subresource that only the writer has (Sub...), with the type of
// its body and the type of its answer. The writer finds the answer in live reads, after all commands
// before it in the turn.
//
// A few patches are subresources of the writer as well, since they need secrets that no message may
// contain: tokens of ServiceAccounts, certificates, signatures of bootstrap tokens.
//
// Everything here is a plain value. Package apply of the writer has the reads.
package query
