// Package reconcile knows what it must not.
package reconcile

import _ "github.com/millrace/millrace/services/reconcilers/kube/pod" // want: a decision is a value
