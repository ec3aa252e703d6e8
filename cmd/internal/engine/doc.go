// Package engine finds the Docker engine of this machine, or else installs Debian's and
// runs it for as long as it is needed.
//
// An engine that it started keeps all files below one directory, listens only on a socket
// there, and does not change the machine's firewall and routing: containers can connect to
// each other, and 127.0.0.1 to their published ports, without that.
package engine
