// Package process runs a process of Millrace: its [Part]s start together and stop in order, and the health
// address serves their health, metrics and pages. It has the flags of that address: where it listens, its
// certificate, and who may read what. The command millrace healthcheck asks it.
package process
