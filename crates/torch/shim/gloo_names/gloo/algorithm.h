// Stand-in: the torch wheel holds Gloo's code but not its headers. ProcessGroupGloo.hpp needs the names only.
#pragma once
