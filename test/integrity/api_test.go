package integrity_test

import (
	"fmt"
	"path"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/apiservertest"
)

// api is an API server of pods.
type api struct{ *apiservertest.Server }

func newAPI(t *testing.T) *api {
	a := &api{apiservertest.New(t, apiservertest.Serving(apiservertest.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}))}
	a.Load(1, nil)
	return a
}

func podPath(name string) string { return "/api/v1/namespaces/default/pods/" + name }

// put creates or changes a pod; the name of its node pads it.
func (a *api) put(name, padding string) {
	a.Put(podPath(name), "", corev1.Pod{Spec: corev1.PodSpec{NodeName: padding}})
}

func (a *api) remove(name string) { a.Remove(podPath(name)) }

func (a *api) has(name string) bool { return a.Get(podPath(name)) != nil }

// restored restores the storage from a backup: the same pods, in versions that are older than
// those that it had sent, at a version before the newest of theirs.
func (a *api) restored() {
	const first, behind = 2, 5
	pods, paths := map[string]any{}, a.Paths()
	for i, at := range paths {
		pods[at] = corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: a.metadata(at).UID, ResourceVersion: strconv.Itoa(first + i)},
			Spec:       corev1.PodSpec{NodeName: "of-the-backup"},
		}
	}
	a.Load(first+len(paths)-1-behind, pods)
}

func (a *api) metadata(at string) (m metav1.ObjectMeta) {
	metadata, _ := a.Get(at)["metadata"].(map[string]any)
	uid, _ := metadata["uid"].(string)
	version, _ := metadata["resourceVersion"].(string)
	return metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: version}
}

// versions are the versions of all pods, by name.
func (a *api) versions() map[string]string {
	all := map[string]string{}
	for _, at := range a.Paths() {
		all[path.Base(at)] = a.metadata(at).ResourceVersion
	}
	return all
}

func podName(i int) string { return fmt.Sprint("pod-", i) }
