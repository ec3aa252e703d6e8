package storage

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	csitrans "k8s.io/csi-translation-lib"
	"k8s.io/kubernetes/pkg/controller/volume/expand"
	"k8s.io/kubernetes/pkg/volume/csimigration"

	"github.com/millrace/millrace/services/reconcilers/controllers/volumeexpander"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/objects"
)

// VolumeExpander is the controller that names the resizer of a volume. No plugin that kube-controller-manager
// gives to upstream's expands volumes itself.
var VolumeExpander = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		translator := csitrans.New()
		ec, err := expand.NewExpandController(ctx, c, f.Core().V1().PersistentVolumeClaims(), nil, translator, csimigration.NewPluginManager(translator))
		if err != nil {
			return nil, fmt.Errorf("make the volume expand controller: %w", err)
		}
		return func() { ec.Run(ctx) }, nil
	},
	Ours: volumeexpander.Controller, Alone: frozen.NeverAlone, Fair: patchesAlike,
}

// patchesAlike leaves out the version of the claim in upstream's patches, which ours has as a condition, and
// patches with nothing else in them.
func patchesAlike(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	version := `{"metadata":{"resourceVersion":"` + world[0].(objects.Object).GetResourceVersion() + `"}}`
	theirs = exemption.Lets("empty-patch", theirs, effect.Only(theirs, func(e effect.Effect) bool { return e.Verb != effect.Patch || !strings.HasSuffix(e.Body, " "+version) }))
	for i, e := range theirs {
		if e.Verb == effect.Patch {
			theirs[i].Body = strings.Replace(e.Body, `,"resourceVersion":"`+world[0].(objects.Object).GetResourceVersion()+`"`, "", 1)
			exemption.Uses("version-in-patch")
		}
	}
	return theirs, ours
}
