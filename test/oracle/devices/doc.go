// Package devices compares the controllers of dynamic resource allocation with upstream's: ResourceClaims, device
// taints and requests about pools of devices.
package devices
