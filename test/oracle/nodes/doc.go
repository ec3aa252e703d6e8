// Package nodes compares the controllers of nodes with upstream's: node lifecycle, taint eviction, node IPAM and
// the TTL of nodes.
package nodes
