# Replaces what differs between two runs of the same command: times, ages, uids, versions, addresses, random suffixes.
s/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?(Z|[+-][0-9:]{5})/<time>/g
s/(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} [+-][0-9]{4}/<time>/g
s/^[EWI][0-9]{4} [0-9:.]+ +[0-9]+ //
s/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/<uid>/g
s/(resourceVersion"?: ?"?)[0-9]+/\1<version>/g
s/(the object has been modified.*|Resource Version: +)[0-9]+/\1<version>/g
s/https:\/\/127\.0\.0\.1:[0-9]{4,5}/<server>/g
s/127\.0\.0\.1:[0-9]{4,5}/<server>/g
s/\b(10|127|192)\.[0-9]+\.[0-9]+\.[0-9]+\b/<address>/g
s/(nodePort"?: ?|NodePort: .* |:)3[0-9]{4}\b/\1<port>/g
s/-[bcdfghjklmnpqrstvwxz2456789]{6,10}(-[bcdfghjklmnpqrstvwxz2456789]{5})?\b/-<random>/g
s/(pod-template-hash"?[=:] ?"?)[bcdfghjklmnpqrstvwxz2456789]{6,10}/\1<random>/g
s/\b(web|many|two|busy)\.[0-9a-f]{14,16}\b/\1.<random>/g
s/(fake-node|node-0)/<node>/g
s/\/tmp\/[^ "':,\t]*/<path>/g
s/^(---|\+\+\+) <path>.*/\1 <path>/
s/debugger-[a-z0-9]{5}/debugger-<random>/g
s/(^|[ (=])([0-9]+(ms|[smhd]))+( ago)?( |$|\))/\1<age>\5/g
s/(^|[ (=])([0-9]+(ms|[smhd]))+( ago)?( |$|\))/\1<age>\5/g
s/<invalid>/<age>/g
s/[ \t]+/ /g
s/ $//
