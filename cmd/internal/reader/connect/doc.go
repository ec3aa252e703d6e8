// Package connect opens the record: on a bus, with its address and login as flags, or in a
// file that was exported from one. It also keeps the logins that a bus on this machine has
// made for its system user.
package connect
