// Package network has Services, Endpoints and EndpointSlices, the ranges of addresses of nodes and
// Services, and groups of pods in a simulated cluster: what users do with them, and what must hold.
//
// The rules say: a slice names the pods that answer, and each once; no address is of two nodes; a range
// or a group that is in use does not go.
package network
