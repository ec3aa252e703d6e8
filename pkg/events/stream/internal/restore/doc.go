// Package restore imports a stream into a bus: it creates the stream with the messages of another one, under their
// sequences and times. It writes them as a backup, which the server restores.
package restore
