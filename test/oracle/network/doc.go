// Package network compares the controllers of Endpoints, EndpointSlices, mirrored EndpointSlices and ServiceCIDRs
// with upstream's.
package network
