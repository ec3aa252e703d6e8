// Package cluster has what everything outside of the processes of Millrace shares in a simulated world:
// the API server, the time, the draws of chance, the transcript, and the record of what happened.
//
// A Cluster is changed by operations of users, by nodes and by drivers. Operations that are of no group of
// controllers are here: create, delete and annotate an object, release or fail a pod.
//
// A Guard is the record that rules read: which pods live, what was asked for, written, promised and
// seen, turn by turn. A rule that is broken calls Breaks, which ends the world with its transcript. Where
// upstream has the same weakness, or a rule cannot know, it calls Spare with one of the exceptions, each of
// which says why; worlds count them. A Look is the view that one decision rests on.
//
// The rules themselves, and the operations of users, are in the packages of the groups of controllers:
// nodes, workloads, storage, devices, network, access and metadata.
package cluster
