// Package access has the credentials of a simulated cluster: certificate requests, tokens of service
// accounts and of joining nodes, and the signed cluster-info. It has what users and administrators do with
// them, and what must hold.
//
// The rules say: what is signed was approved, no token goes that is in use or has time left, and no
// signature outlives its token.
package access
