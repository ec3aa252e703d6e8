// Package provision creates the streams and consumers of a bus with the settings that this version wants.
//
// The creator of a stream or a consumer names subjects to which the server then sends stored
// messages: the delivery subject of a push consumer, or the subjects of a stream that sources,
// republishes or transforms. So on a bus with accounts a service may create neither. It checks
// whether the streams and consumers that it needs exist with the wanted settings, and asks the
// provisioner for the missing ones ([Provision.Provide]). A bus without accounts has no provisioner:
// there every process creates its own.
package provision
