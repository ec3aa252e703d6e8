// Package storage has the volumes of a simulated cluster: what users do with claims, volumes and classes,
// the drivers that make, attach, resize and delete volumes, the kubelets that mount them, and what must
// hold.
//
// The rules say: a claim has one volume, no data go that are claimed, nothing is detached that is in use,
// and what is in use has its finalizer.
package storage
