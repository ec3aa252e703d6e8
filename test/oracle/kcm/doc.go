// Package kcm has what all runs of upstream's controllers, those of kube-controller-manager, need: the function
// that makes one ([Build]), its feature gates, and informers that list in one order.
package kcm
