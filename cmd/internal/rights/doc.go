// Package rights says what each service has to be allowed on the API server, cut from what
// the controllers read ([reconcile.Input]) and promise to write ([reconcile.Writes]).
//
// Watchers list and watch kinds. Writers have no right of their own: they impersonate the
// service accounts of the controllers, whose requests Kubernetes' own roles bound. With
// constrained impersonation (KEP 5284, on by default from Kubernetes 1.36) a writer's role
// says besides which verbs on which resources it may use while it impersonates: a union
// over all of its identities. Each request is then bounded twice, by the writer's role and
// by the controller's. So a right that the controller's role does not have either is left
// out ([upstream.yaml], held against Kubernetes' policy in test/oracle).
package rights
