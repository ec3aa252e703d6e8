// Package lookup finds single messages of a stream: the one at a sequence, the newest of a subject, the next of a
// subject, and the newest of each of many subjects.
package lookup
