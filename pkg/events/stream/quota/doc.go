// Package quota bounds how many consumers the readers of a user may have on a bus with accounts, at each stream and
// at all of them ([Readers]). A provisioner asks it before it creates a consumer.
package quota
