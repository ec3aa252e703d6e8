package nodes

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreamttl "k8s.io/kubernetes/pkg/controller/ttl"

	"github.com/millrace/millrace/pkg/events/kinds"
	nodettl "github.com/millrace/millrace/services/reconcilers/controllers/ttl"
	"github.com/millrace/millrace/test/oracle/stage"
)

// NodeTTL sets on nodes for how long they may cache.
var NodeTTL = stage.Life{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		tc := upstreamttl.NewTTLController(ctx, f.Core().V1().Nodes(), c)
		return func() { tc.Run(ctx, 1) }, nil
	},
	Ours: nodettl.Controller, Kinds: []kinds.Kind{kinds.Nodes.Kind}, Chapter: time.Minute,
	Line: func(obj metav1.Object) string { return fmt.Sprint(obj.GetName(), " ", obj.GetAnnotations()) },
}
