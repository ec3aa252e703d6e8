// Package apply is the writer's door to the API server: it makes the requests
// of a plan with the identity of the controller that decided, and hands the
// answers back.
//
// For each turn one goroutine ([Door.Carry]) talks to the plan; each request
// has a goroutine of its own, and one semaphore bounds all of them:
//
//	Carry ──Next──► request ──┐
//	   ▲            request ──┼──► in flight (MaxInFlight) ──► API server
//	   └──Answer── request ◄──┘
//
// [Teller] writes Kubernetes Events from one goroutine behind a bounded queue,
// so that telling never delays a turn.
//
// Identity. Where Impersonate is set, a request of a controller is made as its
// service account in kube-system, so that Kubernetes' own system:controller:*
// roles bound what it may do; in constrained impersonation the writer's own role bounds it
// besides (docs/rights.md). Discovery, which no controller's role need allow,
// is always done as the writer itself.
//
// Field manager. Writes are made as "kube-controller-manager", the name that
// Kubernetes' own controllers go by in managedFields: the fields of objects that
// existed before Millrace keep one owner, and server-side apply of users meets
// the conflicts it knows. What is applied is so under the controller's own name, as by
// Kubernetes' own controllers.
package apply
