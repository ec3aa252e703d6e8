package devices

import (
	"context"
	"fmt"
	"time"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreampools "k8s.io/kubernetes/pkg/controller/resourcepoolstatusrequest"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourcepoolstatusrequest"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/stage"
)

// PoolRequests answers requests about pools of devices.
var PoolRequests = frozen.Pair{Theirs: buildPoolRequests, Ours: resourcepoolstatusrequest.Controller, Alone: frozen.NeverAlone, Fair: fairPoolRequests}

// PoolRequestsAtRest leaves it alone until upstream has polled some times more for expired requests.
var PoolRequestsAtRest = stage.Rest{Theirs: buildPoolRequests, Ours: resourcepoolstatusrequest.Controller, Kinds: aboutPools, Long: 41 * time.Minute}

// PoolRequestsLive is the same controller while drivers publish slices and claims get devices.
// No request is old enough to be deleted.
var PoolRequestsLive = stage.Life{Theirs: buildPoolRequests, Ours: resourcepoolstatusrequest.Controller, Kinds: aboutPools, Chapter: 30 * time.Second, Line: poolRequestLine}

var aboutPools = []kinds.Kind{kinds.ResourcePoolStatusRequests.Kind, kinds.ResourceSlices.Kind, kinds.ResourceClaims.Kind}

func buildPoolRequests(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	devices := f.Resource().V1()
	pc, err := upstreampools.NewController(ctx, c, f.Resource().V1alpha3().ResourcePoolStatusRequests(), devices.ResourceSlices(), devices.ResourceClaims())
	if err != nil {
		return nil, fmt.Errorf("make the controller of requests about pools: %w", err)
	}
	return func() { pc.Run(ctx, 1) }, nil
}

// poolRequestLine is a request with its answer, without the time of the answer.
func poolRequestLine(obj metav1.Object) string {
	r, ok := obj.(*resourcev1alpha3.ResourcePoolStatusRequest)
	if !ok {
		return ""
	}
	r = r.DeepCopy()
	if r.Status != nil {
		for i := range r.Status.Conditions {
			r.Status.Conditions[i].LastTransitionTime = metav1.Time{}
		}
	}
	return fmt.Sprintf("%s %s", r.UID, effect.JSON(effect.NonEmpty(map[string]any{"status": r.Status})))
}

// fairPoolRequests leaves out that upstream deletes an object that is already being deleted, and that it
// answers a request older than a day at its start, while it deletes the request.
func fairPoolRequests(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	if r := world[0].(*resourcev1alpha3.ResourcePoolStatusRequest); r.Status == nil && objects.Now.Sub(r.CreationTimestamp.Time) > 24*time.Hour {
		theirs = exemption.Lets("answered-and-deleted", theirs, effect.Only(theirs, func(e effect.Effect) bool { return e.Verb != effect.Update }))
	}
	return frozen.DeletedOnce(world, theirs, ours)
}
