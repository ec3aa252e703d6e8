// Package devices has the devices of dynamic resource allocation in a simulated cluster: drivers that
// publish and taint devices, a scheduler that allocates them, users that claim them, and requests for the
// status of a pool.
//
// The rules say: a device is of those who claim it, no pod has to leave a device without a reason, and a
// request about a pool is answered once, with what is so.
package devices
