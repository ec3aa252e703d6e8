package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	quotas "github.com/millrace/millrace/services/reconcilers/controllers/resourcequota"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
)

// countable are the kinds in a world of quotas.
var countable = []kinds.Kind{
	kinds.Pods.Kind, kinds.Services.Kind, kinds.PersistentVolumeClaims.Kind, kinds.ResourceClaims.Kind, kinds.DeviceClasses.Kind,
	kinds.ConfigMaps.Kind, kinds.ResourceQuotas.Kind, kinds.ReplicationControllers.Kind, kinds.Deployments.Kind, secrets,
}

var secrets = kinds.Kind{Name: "secrets", Version: "v1", Kind: "Secret", Namespaced: true, Form: kinds.Metadata}

// CompareQuota has both count the usage of the quota, which is the first object of a world, under the given
// feature gates, and shows the difference; "" if there is none.
func CompareQuota(t *testing.T, world []runtime.Object, gates gate.Set) (diff string, err error) {
	theirs, err := QuotaOfTheirs(t, world, gates)
	if err != nil {
		return "", fmt.Errorf("ask upstream: %w", err)
	}
	ours, err := quotaOfOurs(world, gates)
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	a, b := amounts(theirs), amounts(ours)
	if a == b {
		return "", nil
	}
	return fmt.Sprintf("- %s\n+ %s", a, b), nil
}

// amounts is the spec and status of a quota as text; equal amounts have equal texts.
func amounts(q *corev1.ResourceQuota) string {
	said := func(list corev1.ResourceList) string {
		var parts []string
		for name, amount := range list {
			parts = append(parts, fmt.Sprintf("%s=%dm", name, amount.MilliValue()))
		}
		return strings.Join(slices.Sorted(slices.Values(parts)), " ")
	}
	return "hard " + said(q.Status.Hard) + "; used " + said(q.Status.Used)
}

func quotaOfOurs(world []runtime.Object, gates gate.Set) (*corev1.ResourceQuota, error) {
	s := reconciletest.NewWorld(countable...)
	for _, obj := range world {
		s.Put(countedAs(obj), obj.(objects.Object))
	}
	quota := world[0].(*corev1.ResourceQuota).DeepCopy()
	d, ok := quotas.New(quotas.Config{Gates: gates}).Ask(s, events.Key{Namespace: quota.Namespace, Name: quota.Name}, objects.Now)
	if !ok || len(d.Commands) == 0 {
		return quota, nil
	}
	next, err := kinds.Decode(kinds.ResourceQuotas.Kind, kinds.JSON, d.Commands[0].Body)
	if err != nil {
		return nil, err
	}
	return next.(*corev1.ResourceQuota), nil
}

func countedAs(obj runtime.Object) kinds.Kind {
	switch obj.(type) {
	case *corev1.ResourceQuota:
		return kinds.ResourceQuotas.Kind
	case *corev1.Service:
		return kinds.Services.Kind
	case *corev1.PersistentVolumeClaim:
		return kinds.PersistentVolumeClaims.Kind
	case *resourcev1.ResourceClaim:
		return kinds.ResourceClaims.Kind
	case *resourcev1.DeviceClass:
		return kinds.DeviceClasses.Kind
	case *corev1.ConfigMap:
		return kinds.ConfigMaps.Kind
	case *appsv1.Deployment:
		return kinds.Deployments.Kind
	case *corev1.Secret:
		return secrets
	default:
		return kinds.Pods.Kind
	}
}

// QuotaOfTheirs returns the quota as upstream's controller counts it.
func QuotaOfTheirs(t *testing.T, world []runtime.Object, gates gate.Set) (counted *corev1.ResourceQuota, err error) {
	failed := kcm.WithGates(gates, func() {
		synctest.Test(t, func(*testing.T) {
			time.Sleep(time.Until(objects.Now))
			counted, err = countTheirs(objects.Copied(world))
		})
	})
	return counted, errors.Join(failed, err)
}

func countTheirs(world []runtime.Object) (*corev1.ResourceQuota, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewSimpleClientset(world...)
	factory := informers.NewSharedInformerFactory(client, 0)
	run, err := buildQuotas(ctx, factory, client)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	synctest.Wait() // the evaluator of devices has seen the classes
	var running sync.WaitGroup
	running.Go(run)
	time.Sleep(time.Second)
	synctest.Wait()
	quota := world[0].(*corev1.ResourceQuota)
	counted, err := client.CoreV1().ResourceQuotas(quota.Namespace).Get(ctx, quota.Name, metav1.GetOptions{})
	cancel()
	running.Wait()
	factory.Shutdown()
	return counted, err
}

// buildQuotas makes upstream's quota controller.
func buildQuotas(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	started := make(chan struct{})
	config, err := quotainstall.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(f.ForResource), f)
	if err != nil {
		return nil, err
	}
	never := func() time.Duration { return 0 }
	rq, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient: c.CoreV1(), ResourceQuotaInformer: f.Core().V1().ResourceQuotas(), ResyncPeriod: never,
		InformerFactory: f, ReplenishmentResyncPeriod: never, DiscoveryFunc: discover,
		IgnoredResourcesFunc: config.IgnoredResources, InformersStarted: started,
		Registry: generic.NewRegistry(config.Evaluators()), UpdateFilter: quotainstall.DefaultUpdateFilter(),
	})
	if err != nil {
		return nil, err
	}
	return func() {
		close(started)
		rq.Run(ctx, 1)
	}, nil
}

// discover returns the namespaced kinds of the world.
func discover() ([]*metav1.APIResourceList, error) {
	groups := map[string]*metav1.APIResourceList{}
	var lists []*metav1.APIResourceList
	for _, k := range countable {
		if !k.Namespaced {
			continue
		}
		if groups[k.APIVersion()] == nil {
			groups[k.APIVersion()] = &metav1.APIResourceList{GroupVersion: k.APIVersion()}
			lists = append(lists, groups[k.APIVersion()])
		}
		list := groups[k.APIVersion()]
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.Name.Resource(), Namespaced: true, Kind: k.Kind, Verbs: metav1.Verbs{"create", "delete", "list", "watch"},
		})
	}
	return lists, nil
}
