package serviceaccount

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func decide(v View, _ time.Time) reconcile.Decision {
	switch {
	case v.Namespace.Status.Phase != corev1.NamespaceActive:
		// If the view is stale, the API server refuses the create until the view
		// has caught up.
		return reconcile.Nothing("the namespace is not active")
	case len(v.Missing) == 0:
		return reconcile.Nothing("the namespace has its accounts")
	default:
		return reconcile.Do("the namespace lacks an account", v.creates()...)
	}
}

func (v View) creates() []events.Command {
	body := reconcile.Body(corev1.ServiceAccount{})
	creates := make([]events.Command, len(v.Missing))
	for i, name := range v.Missing {
		creates[i] = reconcile.Create(kinds.ServiceAccounts.Kind, v.Namespace.Name, name, body)
	}
	return creates
}
