package access

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/rootcapublisher"
	accounts "github.com/millrace/millrace/services/reconcilers/controllers/serviceaccount"
	"github.com/millrace/millrace/test/oracle/stage"
)

// publishedCA is the certificate that is published.
const publishedCA = "a root certificate"

// RootCAPublisher publishes the root certificate.
var RootCAPublisher = stage.Life{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		p, err := rootcacertpublisher.NewPublisher(f.Core().V1().ConfigMaps(), f.Core().V1().Namespaces(), c, []byte(publishedCA))
		if err != nil {
			return nil, fmt.Errorf("make the publisher: %w", err)
		}
		return func() { p.Run(ctx, 1) }, nil
	},
	Ours:  rootcapublisher.New(rootcapublisher.Config{RootCA: []byte(publishedCA)}),
	Kinds: []kinds.Kind{kinds.Namespaces.Kind, kinds.ConfigMaps.Kind}, Chapter: time.Minute,
	Line: func(obj metav1.Object) string {
		if c, ok := obj.(*corev1.ConfigMap); ok {
			return fmt.Sprintf("%s/%s %v %v %v", c.Namespace, c.Name, c.Annotations, c.Data, c.BinaryData)
		}
		return ""
	},
}

// ServiceAccounts ensures that namespaces have their accounts.
var ServiceAccounts = stage.Life{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core := f.Core().V1()
		sc, err := serviceaccount.NewServiceAccountsController(logr.Discard(), core.ServiceAccounts(), core.Namespaces(), c, serviceaccount.DefaultServiceAccountsControllerOptions())
		if err != nil {
			return nil, fmt.Errorf("make the service account controller: %w", err)
		}
		return func() { sc.Run(ctx, 1) }, nil
	},
	Ours:  accounts.Controller,
	Kinds: []kinds.Kind{kinds.Namespaces.Kind, kinds.ServiceAccounts.Kind}, Chapter: time.Minute,
	Line: func(obj metav1.Object) string {
		if a, ok := obj.(*corev1.ServiceAccount); ok {
			return fmt.Sprintf("%s/%s %v %v", a.Namespace, a.Name, a.Annotations, a.Secrets)
		}
		return ""
	},
}
