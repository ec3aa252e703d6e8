// Package jaeger asks a Jaeger for traces, through version 3 of its query API,
// which gives parents and links apart, and draws them as trees.
package jaeger
