// Package apply is the writer's door to the API server: it makes the requests of a plan with the
// identity of the controller that decided, and returns the answers.
//
// For each turn one goroutine ([Client.Execute]) talks to the plan. Each request has a goroutine of
// its own, and one semaphore bounds all of them:
//
//	Carry ──Next──► request ──┐
//	   ▲            request ──┼──► in flight (MaxInFlight) ──► API server
//	   └──Answer── request ◄──┘
//
// Before a create that may have happened before, the door finds out whether it has (created.go,
// versions.go); and it proves that an owner is absent before a plan deletes a dependent (owners.go).
// Single requests are package apiclient's. The questions of the command ask are answered by package
// ask, and writes that need a key or a Secret are completed by package credentials. Package
// eventrecorder writes Kubernetes Events through a door.
//
// Identity. With Impersonate the door makes a controller's requests as its service account in
// kube-system, so that Kubernetes' own system:controller:* roles bound what it may do. In
// constrained impersonation the writer's own role bounds it as well (docs/rights.md). The door
// always does discovery as the writer itself, since no controller's role has to allow it.
//
// Field manager. The door writes as "kube-controller-manager", the name of Kubernetes' own
// controllers in managedFields: the fields of objects older than Millrace keep one owner, and
// users' server-side apply meets the conflicts it knows. The door applies under the controller's
// own name, as Kubernetes' own controllers do.
package apply
