// Package rights measures on a real API server what the identities of Millrace may do. A golden file has
// every controller's identity and every write and read that matters; for each right in the generated roles,
// the tests check that something needs it.
//
// The tests do not review impersonation but use it, in requests that change nothing.
package rights
