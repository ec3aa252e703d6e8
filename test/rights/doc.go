// Package rights measures on a real API server what the identities of Millrace may do: a
// table of every controller's identity and every write and read that matters, as a golden
// file, and for each right in the generated roles whether something needs it.
//
// Impersonation is not asked about in reviews but used, in requests that change nothing.
package rights
