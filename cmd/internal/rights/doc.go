// Package rights derives the RBAC rights of each service from the inputs of the controllers
// ([reconcile.Input]) and the writes that they promise ([reconcile.Writes]).
//
// Watchers list and watch kinds. Writers have no rights of their own: they impersonate the
// service accounts of the controllers, and Kubernetes' own roles bound these requests. With
// constrained impersonation (KEP 5284, on by default from Kubernetes 1.36) a writer's role
// also lists the verbs and resources that it may use while it impersonates: the union over
// all of its identities. Each request is then bounded twice, by the writer's role and by the
// controller's. So the package leaves out rights that the controller's role does not have
// ([upstream.yaml], compared with Kubernetes' policy in test/oracle).
package rights
