// Package engine is the Docker engine of this machine: the one that answers, or
// else Debian's, which it installs and starts for as long as it is needed.
//
// An engine that it started has everything below one directory, listens on a
// socket there and nowhere else, and leaves the machine's firewall and routing
// alone: containers reach each other, and 127.0.0.1 reaches what they publish,
// without either.
package engine
