// Command manifests reads Kubernetes manifests as the API server would: each
// argument is a file, or a folder with a kustomization, which is built. Every
// document is decoded into the type that it says it is; a field that the type does
// not have, one that stands there twice and a type that is not known are errors.
// It prints all objects as a JSON array, for tests to look into.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	objects := []runtime.Object{}
	var faults []error
	for _, path := range os.Args[1:] {
		found, err := read(path)
		objects = append(objects, found...)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", path, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(objects); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(path string) ([]runtime.Object, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var data []byte
	if info.IsDir() {
		// As `kubectl apply -k` does it: no plugins, nothing from outside the folder.
		options := krusty.MakeDefaultOptions()
		options.LoadRestrictions = types.LoadRestrictionsRootOnly
		built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), path)
		if err != nil {
			return nil, err
		}
		if data, err = built.AsYaml(); err != nil {
			return nil, err
		}
	} else if data, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	return decode(data)
}

// decode goes on after a fault, so that all are reported.
func decode(data []byte) ([]runtime.Object, error) {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var all []runtime.Object
	var faults []error
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return all, errors.Join(append(faults, err)...)
		}
		object, kind, err := strict.Decode(document, nil, nil)
		if err != nil {
			faults = append(faults, fmt.Errorf("document %d: %w", n, err))
			continue
		}
		object.GetObjectKind().SetGroupVersionKind(*kind)
		all = append(all, object)
	}
	if len(all)+len(faults) == 0 {
		faults = append(faults, errors.New("no object stands in it"))
	}
	return all, errors.Join(faults...)
}
