// Package auditlog reads the record beside the API server's audit log: it compares the writes in
// the log with the outcomes on record, and names the users that made recorded versions.
package auditlog
